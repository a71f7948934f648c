package api

import (
	"strings"

	"relay/scheduler"
)

// What of OpenAI's and Anthropic's APIs a mesh does not serve, and why.
const (
	keepsNothing = "relay keeps no answers, files or threads, so there are none to fetch, change or delete"
	notOurs      = "models here read and write text"
	byAdmins     = "models are registered and removed by an admin (relay model add, relay model rm)"
)

// unserved are their routes that are not here, by how they begin after /v1/. The
// parts of a path are compared whole.
var unserved = []struct{ path, why string }{
	{"assistants", keepsNothing}, {"threads", keepsNothing}, {"files", keepsNothing}, {"uploads", keepsNothing}, {"batches", keepsNothing},
	{"vector_stores", keepsNothing}, {"conversations", keepsNothing}, {"containers", keepsNothing}, {"chatkit", keepsNothing}, {"skills", keepsNothing},
	{"messages/batches", keepsNothing}, {"evals", keepsNothing},
	{"responses/compact", "an answer is not made shorter here; send a shorter input"},
	{"fine_tuning", "relay trains nothing"},
	{"moderations", "relay moderates nothing"},
	{"images", notOurs}, {"audio", notOurs}, {"videos", notOurs}, {"realtime", notOurs},
	{"organization", "an admin sees to keys and usage (relay key, relay audit)"},
}

// unservedRoute finds a refusal that names what a known client asks for and no mesh
// can have, or nil where that is not it. method and path are the client's.
func unservedRoute(method, path string) *refusal {
	rest, ok := strings.CutPrefix(path, "/v1/")
	if !ok {
		return nil
	}
	rest = strings.TrimSuffix(rest, "/")
	why := ""
	for _, u := range unserved {
		if rest == u.path || strings.HasPrefix(rest, u.path+"/") {
			why = u.why
		}
	}
	switch _, id, _ := strings.Cut(rest, "/"); {
	case why != "":
	case rest == "v1" || strings.HasPrefix(rest, "v1/"):
		return refuse(scheduler.RouteNotFound, "there is no %s here: the path has /v1 twice; the base URL of Anthropic's clients is written without /v1, that of OpenAI's with it", clip(path, 100))
	case rest == "chat/completions" && method == "GET":
		why = keepsNothing + "; to ask a model, POST a JSON body"
	case strings.HasPrefix(rest, "chat/completions/"), strings.HasPrefix(rest, "responses/") && id != "input_tokens":
		why = keepsNothing
	case strings.HasPrefix(rest, "models/") && method == "DELETE":
		why = byAdmins
	default:
		return nil
	}
	return refuse(scheduler.InvalidRequest, "%s %s is not served: %s", clip(method, 20), clip(path, 100), why)
}
