"""The border to the peers: frames in and out, authentication, authorization, value bounds."""
