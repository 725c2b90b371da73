"""The paper as commands: its tables and figures as recipes, the numbers it prints, and its claims."""

from unem.experiments.paper.claims import CLAIMS, Check, Difference, check_claims, paired
from unem.experiments.paper.recipes import (
    Recipe,
    RecipePlan,
    check_methods,
    citation,
    list_recipes,
    plan_recipe,
    printed,
    recipe,
)
from unem.experiments.paper.tables import Entry, Grid, depth_rows, entries, grid, mean_accuracy

__all__ = [
    "CLAIMS",
    "Check",
    "Difference",
    "Entry",
    "Grid",
    "Recipe",
    "RecipePlan",
    "check_claims",
    "check_methods",
    "citation",
    "depth_rows",
    "entries",
    "grid",
    "list_recipes",
    "mean_accuracy",
    "paired",
    "plan_recipe",
    "printed",
    "recipe",
]
