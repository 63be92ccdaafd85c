"""The engine of one machine.

`local_engine` runs jobs in worker processes, `worker_processes` starts them through the fork server
of `fork_server`, and `cpu_slots` shares the cores among their tests.
"""
