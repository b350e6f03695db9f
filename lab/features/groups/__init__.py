"""Groups: worlds and groups that ranks made otherwise than others did, or destroyed while others used them."""
