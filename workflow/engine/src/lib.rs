//! The workflow engine: a run's state and an event give the next state and the actions, without I/O.
