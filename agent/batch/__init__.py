"""Many instances: a driver, its workers, and a run folder from which any run goes on."""
