package gpu

// maker is whose tool shows a card.
type maker string

const (
	nvidia maker = "nvidia"
	amd    maker = "amd"
)

// maxCards bounds how many cards of a tool are looked at; no machine has more.
const maxCards = 64

// card is a GPU as its maker's tool shows it.
type card struct {
	maker maker
	index int // The tool's own count.
	uuid  string
	name  string
	// total is in bytes; 0 where it is not known. used and free, in bytes, mean
	// nothing unless inUse.
	total, used, free uint64
	inUse             bool
	unified           bool   // The tool has no figures for it, as for GPUs without memory of their own.
	divided           bool   // By MIG, into parts that each count as a GPU.
	trouble           string // What the tool says where it has no figures and should.
}

// process is a program that a tool shows on a card.
type process struct {
	uuid  string // Of the card.
	pid   int
	bytes uint64 // They mean nothing unless known.
	known bool
}
