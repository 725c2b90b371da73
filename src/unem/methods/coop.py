"""CoOp, which cached features cannot run."""

from typing import NoReturn

from unem.errors import InputError
from unem.methods.base import register


@register(
    "coop",
    reference="K. Zhou et al., Learning to prompt for vision-language models, IJCV 2022",
    inputs="image+text",
    transductive=False,
)
def coop() -> NoReturn:
    r"""CoOp: learned context words before the class names; listed only, as it cannot run on cached features.

    Minimises the support's cross-entropy over the context vectors v of the prompts ``[v₁ … v_M, class name]``; its gradient passes
    through the text encoder.
    """
    raise InputError(
        "method 'coop': learned context needs the text encoder, which cached features do not have; "
        "'tip-adapter-f' and 'lp++' adapt to the support without it"
    )
