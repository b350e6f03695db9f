"""Pictures of data movement: what each call did with everybody's buffers."""
