"""The variables that Muster sets in the environment of a replica. Its first processes read nothing else of a run."""

# The environment of every replica. RANK and WORLD_SIZE are those of a process inside its replica, as torch reads them;
# the replica's launcher sets them.
ENV_DOCUMENT = "MUSTER_DOCUMENT"
ENV_RUN = "MUSTER_RUN"
ENV_RANK = "MUSTER_RANK"
ENV_ATTEMPT = "MUSTER_ATTEMPT"
ENV_PROCESSES = "MUSTER_PROCESSES"
# A folder of the instance that outlives the container: for inner states between rounds. Optional.
ENV_LOCAL_STATES = "MUSTER_LOCAL_STATES"
# SageMaker documents no variable for the region, so the request sets one.
ENV_REGION = "MUSTER_REGION"
# Of a run over several places: this replica's, the bucket of the place, where its values lie, and the region of the
# run's bucket. The last two are set elsewhere than at home alone.
ENV_PLACE = "MUSTER_PLACE"
ENV_NEAR = "MUSTER_NEAR_URI"
ENV_HOME_REGION = "MUSTER_HOME_REGION"
# The names of the variables whose values the container has read from where they refer to. Set in the container alone.
ENV_RESOLVED = "MUSTER_RESOLVED"
