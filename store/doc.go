// Package store keeps what this machine must not forget: a small key-value
// database, the state folder around it with its lock, and secrets in files.
// (Models on disk are in store/content.)
//
// It promises that what Apply acknowledged is on disk, through kill -9 and
// power loss; that two processes never use one state folder; and that a folder
// which cannot be used, or a disk that is full, is said in one sentence with
// what to do.
//
// It alone opens badger. It never decides what a record means, never opens a
// network connection, and never deletes a file that it did not make.
package store
