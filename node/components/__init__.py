"""The life of what a node is made of: started in order of dependency, told of changes, stopped in reverse (R10)."""
