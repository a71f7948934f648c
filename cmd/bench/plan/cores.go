package main

import "context"

func sharing(ctx context.Context) error { return nil }
