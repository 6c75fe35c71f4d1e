"""The client: the SDK's classes and the command `muster`. Import its names from `muster` itself."""
