"""Special functions, Dirichlet maximum likelihood and keyed permutations: mathematics without few-shot learning."""
