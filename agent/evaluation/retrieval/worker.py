"""The program of a worker process: `python -m agent.evaluation.retrieval.worker`."""

from agent.evaluation.retrieval.measuring import main

if __name__ == "__main__":
    main()
