"""The engine of a Ray cluster.

`ray_engine` gives jobs to the nodes and keeps all results on the driver. `cluster` is the only
module that imports Ray, `node` runs jobs on a node, `repository_transfer` sends repositories.
"""
