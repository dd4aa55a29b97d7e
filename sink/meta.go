package sink

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outboxrelay/outbox-relay/outbox"
)

// reading is what the cluster says about one topic.
type reading struct {
	partitions int
	id         [16]byte
	limit      int   // max.message.bytes; 0 when it could not be read
	err        error // nil when the topic can be used
}

// read asks the cluster about topics, on a goroutine of its own.
func (p *pump) read(topics []*topic) {
	p.reading = true
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.name
		t.fetchAt = time.Time{}
		if t.fault != nil && t.fault.renew && !t.fault.until.After(p.now) {
			t.fault.renew = false
			p.renew("a topic was created anew")
		}
	}
	client := p.producer.client
	p.send(func(ctx context.Context) func() {
		found, err := readTopics(ctx, client, names)
		return func() {
			if err != nil && client != p.producer.client {
				err = errReplaced
			}
			p.readDone(names, found, err)
		}
	})
}

// errReplaced is the error of a reading whose client was replaced under it.
var errReplaced = errors.New("the client was replaced")

// readDone takes the result of a reading.
func (p *pump) readDone(names []string, found map[string]reading, err error) {
	p.reading = false
	p.now = time.Now()
	p.at(p.now) // others may have become due meanwhile
	if err != nil {
		again := p.now
		if !errors.Is(err, errReplaced) {
			p.clusterFault("METADATA", fmt.Errorf("reading metadata: %w", err))
			again = p.cluster.until
		}
		for _, name := range names {
			if t := p.topics[name]; t != nil {
				p.readSoon(t, again)
			}
		}
		return
	}
	if p.producer.ready {
		p.clusterHealed()
	}
	for _, name := range names {
		if t := p.topics[name]; t != nil {
			p.learn(t, found[name])
		}
	}
}

// learn applies what the cluster says about a topic.
func (p *pump) learn(t *topic, r reading) {
	p.dirty = true
	if r.err != nil {
		p.missing(t, r.err)
		return
	}
	if r.limit > 0 {
		t.limit, t.limitFrom = r.limit, limitFromTopic
	}
	t.batchCap = 0
	switch n := len(t.lanes); {
	case n == 0:
		p.makeLanes(t, r.partitions)
	case r.id != t.id || r.partitions > n:
		// More partitions, or another topic of the same name. Fewer of the
		// same topic is an answer from a broker that lags behind.
		t.reshape = r.partitions
		p.producer.client.ForceMetadataRefresh()
		if !t.busy() {
			p.makeLanes(t, r.partitions)
		}
	}
	t.id = r.id
	if t.fault == nil || !t.fault.until.After(p.now) {
		p.readSoon(t, p.now.Add(jittered(p.pace.refresh)))
		if t.fault != nil {
			t.fault.probing = true
			if t.empty() && !t.busy() {
				p.healed(t)
			}
		}
		p.lookAll(t)
		return
	}
	p.readSoon(t, t.fault.until)
}

// missing deals with a topic that the cluster does not let us use.
func (p *pump) missing(t *topic, err error) {
	unknown := errors.Is(err, kerr.UnknownTopicOrPartition)
	if unknown && p.router.refuses && !t.busy() {
		p.refuseAll(t)
		return
	}
	j := judge(err)
	if unknown {
		j.why = "the topic does not exist; create it, or correct the route"
	}
	p.block(t, j, err)
}

// refuseAll refuses everything that waits for a topic that does not exist. The
// cluster has answered after the events came, so this is no outage.
func (p *pump) refuseAll(t *topic) {
	for _, e := range t.gather() {
		p.turnAway(t.name, e, outbox.Refusal{
			Class: outbox.ClassRoute, Code: kerr.UnknownTopicOrPartition.Message,
			Detail: fmt.Sprintf("topic %q does not exist on a cluster that answers, and route.on_missing_topic is refuse", t.name),
		})
	}
	delete(p.topics, t.name)
	clear(p.routes)
}

// readTopics asks for metadata and for max.message.bytes. The error is for the
// cluster as a whole.
func readTopics(ctx context.Context, client *kgo.Client, names []string) (map[string]reading, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.AllowAutoTopicCreation = false
	for _, name := range names {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		request.Topics = append(request.Topics, topic)
	}
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	if len(response.Brokers) == 0 {
		return nil, errors.New("the answer names no broker")
	}
	found := make(map[string]reading, len(names))
	var usable []string
	for i := range response.Topics {
		t := &response.Topics[i]
		if t.Topic == nil {
			continue
		}
		r := reading{partitions: len(t.Partitions), id: t.TopicID, err: kerr.ErrorForCode(t.ErrorCode)}
		if r.err == nil && r.partitions == 0 {
			r.err = kerr.LeaderNotAvailable // just created: known by name alone
		}
		if r.err == nil {
			usable = append(usable, *t.Topic)
		}
		found[*t.Topic] = r
	}
	for _, name := range names {
		if _, ok := found[name]; !ok {
			found[name] = reading{err: kerr.UnknownTopicOrPartition}
		}
	}
	for name, limit := range readLimits(ctx, client, usable) {
		r := found[name]
		r.limit = limit
		found[name] = r
	}
	return found, nil
}

// readLimits asks for the topics' max.message.bytes. What cannot be read, for
// want of the right DescribeConfigs for example, is left out.
func readLimits(ctx context.Context, client *kgo.Client, names []string) map[string]int {
	limits := map[string]int{}
	if len(names) == 0 {
		return limits
	}
	request := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range names {
		resource := kmsg.NewDescribeConfigsRequestResource()
		resource.ResourceType = kmsg.ConfigResourceTypeTopic
		resource.ResourceName = name
		resource.ConfigNames = []string{"max.message.bytes"}
		request.Resources = append(request.Resources, resource)
	}
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return limits
	}
	for _, resource := range response.Resources {
		for _, setting := range resource.Configs {
			if resource.ErrorCode != 0 || setting.Name != "max.message.bytes" || setting.Value == nil {
				continue
			}
			if n, err := strconv.Atoi(*setting.Value); err == nil && n > 0 {
				limits[resource.ResourceName] = n
			}
		}
	}
	return limits
}
