//! What a cluster needs for knmstate, as objects to be applied.
