package relay

// The points of a row's path at which a test may have the process killed.
// They are nothing in an ordinary build; with the build tag failpoints the
// environment variable OUTBOX_RELAY_FAILPOINT=name:n kills the process with
// SIGKILL the n-th time that it comes to the point called name, and name:n:stop
// freezes it there with SIGSTOP until somebody wakes it. Several points with
// commas between them are come to one after the other: settled:3,kicked:1 is
// the first handing over behind the third batch.
const (
	fpReceived      = "received"       // an insert is decoded, no ticket is taken
	fpHeld          = "held"           // the ticket is taken, nothing is handed over
	fpPublished     = "published"      // handed to the sink, not to the client
	fpKicked        = "kicked"         // handed to the client
	fpAcked         = "acked"          // the outcome is known, nothing is written
	fpBatchCut      = "batch_cut"      // the batch is on its way to the settler
	fpSettled       = "settled"        // the batch is committed, the loop does not know
	fpBatchBack     = "batch_back"     // the tickets are settled, nothing is confirmed
	fpConfirming    = "confirming"     // before the status goes out
	fpConfirmed     = "confirmed"      // after it went out, the server may not have it
	fpTakenOver     = "taken_over"     // the nonce is written, nothing is streamed
	fpStreamStarted = "stream_started" // the slot is ours, the nonce is not written
)

// Failpoints lists the names, in the order of a row's path.
var Failpoints = []string{fpStreamStarted, fpTakenOver, fpReceived, fpHeld, fpPublished, fpKicked, fpAcked,
	fpBatchCut, fpSettled, fpBatchBack, fpConfirming, fpConfirmed}
