//! REST and one multiplexed watch for the console, with the rights of its user.
