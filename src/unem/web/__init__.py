"""The web page: drop a few labelled images and a batch of others, see them labelled, correct, and label again.

From what comes in to what is shown: ``uploads`` (files as bytes, within limits), ``sides`` (what a visitor has sent),
``models`` (backbones and methods on offer), ``task_data`` (both sides as features), ``labelling`` (the answer, and what
each layer said), ``outcome`` (the answer in the order asked for), ``downloads``; ``session`` is one visitor,
``visitors`` are all of them. ``views`` makes HTML, ``page`` (with ``page.js`` and ``page.css``) the components and
events, and ``server`` listens. ``examples`` are data to try it with. Everything but ``page`` and ``server`` works
without a web framework.
"""
