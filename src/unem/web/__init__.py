"""The web page: drop a few labelled images and a batch of others, see them labelled, correct, and label again.

From what comes in to what is shown: ``receiving`` (bytes over the network), ``uploads`` and ``feature_files`` (what
they may be), ``limits`` (how much), ``sides`` (what a visitor has sent), ``models`` (backbones and methods on offer),
``task_data`` (both sides as features), ``labelling`` and ``outcome`` (the answer), ``state`` (all of it as plain data),
``downloads``. ``session`` is one visitor, ``visitors`` are all of them, ``pool`` does their work in turn. ``guard``
stands in front, ``routes`` answers, ``page`` has what a browser loads, ``server`` listens: ``receiving`` and these but
``page`` need Starlette or uvicorn. ``examples`` are data to try it with.
"""
