"""The paper as commands: its tables and figures as recipes, the numbers it prints, and its claims."""

from unem.experiments.paper.claims import Check, Difference, check_claims, paired
from unem.experiments.paper.recipes import Recipe, RecipePlan, citation, list_recipes, plan_recipe, printed, recipe
from unem.experiments.paper.tables import Entry, depth_rows, entries, grid

__all__ = [
    "Check",
    "Difference",
    "Entry",
    "Recipe",
    "RecipePlan",
    "check_claims",
    "citation",
    "depth_rows",
    "entries",
    "grid",
    "list_recipes",
    "paired",
    "plan_recipe",
    "printed",
    "recipe",
]
