"""One kind of fault a module, of the name that its key has in a file; its `KIND` is all that is known of it."""
