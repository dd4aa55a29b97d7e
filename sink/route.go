package sink

import (
	"fmt"
	"path"
	"strings"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// Route says which topic an event goes to: its topic column, else Topics by
// event type, else Topics by aggregate type, else Template.
type Route struct {
	Topics   map[string]string
	Template string // "" is outbox.event.${aggregate_type}; also knows ${event_type}
	// Allow lists the topics that may be written: exact names, or patterns
	// in which * stands for any run of characters. Empty allows every
	// name but those that begin with "__", which nothing can allow.
	Allow []string
	// OnMissingTopic is wait (also for "") or refuse.
	OnMissingTopic string
}

const defaultTemplate = "outbox.event.${aggregate_type}"

// The words for Route.OnMissingTopic.
const (
	missingWait   = "wait"
	missingRefuse = "refuse"
)

// maxTopicName is Kafka's own limit: a topic's name becomes a directory's.
const maxTopicName = 249

// router is a Route made ready. It is not changed after newRouter, so any
// goroutine may use it.
type router struct {
	topics   map[string]string
	template []string // literal, variable, literal, ...
	exact    map[string]bool
	patterns []string
	refuses  bool // refuse events of a topic that does not exist
}

func newRouter(r Route) (*router, error) {
	out := &router{topics: r.Topics, exact: map[string]bool{}}
	switch r.OnMissingTopic {
	case "", missingWait:
	case missingRefuse:
		out.refuses = true
	default:
		return nil, fmt.Errorf("configuring the sink: route.on_missing_topic is %q, want wait or refuse", r.OnMissingTopic)
	}
	if r.Template == "" {
		r.Template = defaultTemplate
	}
	var err error
	if out.template, err = parseTemplate(r.Template); err != nil {
		return nil, err
	}
	for _, allow := range r.Allow {
		if !strings.Contains(allow, "*") {
			out.exact[allow] = true
			continue
		}
		// With the alphabet checked, path.Match has no character left
		// that it treats specially but the star.
		if fault := nameFault(strings.ReplaceAll(allow, "*", "x")); fault != "" {
			return nil, fmt.Errorf("configuring the sink: route.allow holds the pattern %q: %s", allow, fault)
		}
		out.patterns = append(out.patterns, allow)
	}
	for from, topic := range r.Topics {
		if fault := out.fault(topic); fault != "" {
			return nil, fmt.Errorf("configuring the sink: route.topics sends %q to %q: %s", from, topic, fault)
		}
	}
	return out, nil
}

// parseTemplate cuts a template into literals and, at the odd indexes,
// variables.
func parseTemplate(template string) ([]string, error) {
	var parts []string
	rest := template
	for {
		literal, after, found := strings.Cut(rest, "${")
		parts = append(parts, literal)
		if !found {
			return parts, nil
		}
		name, tail, closed := strings.Cut(after, "}")
		if !closed || (name != "aggregate_type" && name != "event_type") {
			return nil, fmt.Errorf("configuring the sink: route.template is %q: it may hold ${aggregate_type} and ${event_type} and no other variable", template)
		}
		parts = append(parts, name)
		rest = tail
	}
}

// topic finds the event's topic. The name is returned also when it is refused,
// so that a line can be ordered by it.
func (r *router) topic(e *outbox.Event) (name string, refusal *outbox.Refusal) {
	name = e.Topic
	if name == "" {
		name = r.topics[e.Type]
	}
	if name == "" {
		name = r.topics[e.AggregateType]
	}
	if name == "" {
		name = r.expand(e)
	}
	if fault := r.fault(name); fault != "" {
		return name, &outbox.Refusal{
			Class: outbox.ClassRoute, Code: "topic_not_allowed",
			Detail: fmt.Sprintf("topic %.300q: %s", name, fault),
		}
	}
	return name, nil
}

// expand fills the template; "" when a variable of it is empty.
func (r *router) expand(e *outbox.Event) string {
	var b strings.Builder
	for i, part := range r.template {
		if i%2 == 1 {
			name := part
			if part = e.AggregateType; name == "event_type" {
				part = e.Type
			}
			if part == "" {
				return ""
			}
		}
		b.WriteString(part)
	}
	return b.String()
}

// fault says in words why a topic may not be written; "" when it may.
func (r *router) fault(name string) string {
	if fault := nameFault(name); fault != "" {
		return fault
	}
	if strings.HasPrefix(name, "__") {
		return "names that begin with __ belong to Kafka and to the relay itself"
	}
	if len(r.exact) == 0 && len(r.patterns) == 0 {
		return ""
	}
	if r.exact[name] {
		return ""
	}
	for _, pattern := range r.patterns {
		if ok, _ := path.Match(pattern, name); ok { // the pattern was checked in newRouter
			return ""
		}
	}
	return "not in route.allow"
}

// nameFault checks Kafka's own rules for a topic's name. Brokers answer an
// impossible name like one that does not exist yet, so it must be known here.
func nameFault(name string) string {
	switch {
	case name == "":
		return "a topic's name may not be empty"
	case len(name) > maxTopicName:
		return fmt.Sprintf("a topic's name may have %d characters, this has %d bytes", maxTopicName, len(name))
	case name == "." || name == "..":
		return "a topic may not be named . or .."
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return "a topic's name may hold letters, digits, dot, underscore and hyphen"
		}
	}
	return ""
}
