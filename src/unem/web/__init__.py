"""The web page: drop a few labelled images and a batch of others, see them labelled, correct, and label again."""
