"""What peers may say, and the frames that go in and out."""
