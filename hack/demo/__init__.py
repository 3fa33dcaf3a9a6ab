"""The main job as a story: four fake nodes, real programs, and a gang that starts only when its GPUs are there."""
