//! The controller: from policies to the orders of nodes, and back to what policies say of themselves.
