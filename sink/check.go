package sink

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Severity says how bad a finding is.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // events will wait or be refused
	Warning Severity = "warning" // it works, with a weaker promise or an open question
	Info    Severity = "info"
)

// Finding is one thing that a check saw.
type Finding struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	Observed string   `json:"observed"`
	Required string   `json:"required"`
	Message  string   `json:"message"`       // for people, whole sentences
	Fix      string   `json:"fix,omitempty"` // a command or a setting; "" when there is no single one
	ExitCode int      `json:"exit_code"`     // of a program that ends for it
}

// Exit codes of a program that ends for a finding.
const (
	exitFound       = 3
	exitUnreachable = 13
	exitDenied      = 14
)

// Check looks at the cluster and at topics as the relay will use them: can it
// be reached, may we produce, do the topics exist, how large may records be,
// and what does an acknowledgement mean. It writes nothing. The error is for a
// check that could not be made; what is wrong with the cluster is a finding.
func (k *Kafka) Check(ctx context.Context, topics []string) ([]Finding, error) {
	client, err := kgo.NewClient(append(k.pump.options.shared(), k.pump.config.ClientOptions...)...)
	if err != nil {
		return nil, fmt.Errorf("checking kafka: %w", err)
	}
	defer client.Close()
	c := &checker{kafka: k, client: client}
	if !c.reach(ctx) {
		return c.findings, nil
	}
	c.producerID(ctx)
	if err := c.topics(ctx, topics); err != nil {
		return c.findings, fmt.Errorf("checking topics: %w", err)
	}
	return c.findings, nil
}

type checker struct {
	kafka    *Kafka
	client   *kgo.Client
	findings []Finding
}

func (c *checker) add(f Finding) { c.findings = append(c.findings, f) }

func (c *checker) reach(ctx context.Context) bool {
	limited, cancel := context.WithTimeout(ctx, c.kafka.pump.pace.request)
	defer cancel()
	err := c.client.Ping(limited)
	if err == nil {
		return true
	}
	brokers := strings.Join(c.kafka.pump.config.Brokers, ", ")
	if judge(err).blame == blameConfig {
		c.add(Finding{Code: "kafka.auth", Severity: Error, ExitCode: exitDenied, Observed: err.Error(), Required: "a login",
			Message: "The brokers refuse our login: " + judge(err).why + ".", Fix: "check kafka.sasl and kafka.tls"})
		return false
	}
	observed := err.Error()
	if dial := c.kafka.pump.options.dials.last(); dial != "" {
		observed += "; last failed connection: " + dial
	}
	c.add(Finding{Code: "kafka.unreachable", Severity: Error, ExitCode: exitUnreachable, Observed: observed, Required: "an answer from one of " + brokers,
		Message: "No broker answers. A wrong password and a listener that wants TLS look like this too.",
		Fix:     "check kafka.brokers, the network, kafka.tls and kafka.sasl"})
	return false
}

// producerID asks for one, as the producer will. It is not used.
func (c *checker) producerID(ctx context.Context) {
	request := kmsg.NewPtrInitProducerIDRequest()
	request.TransactionTimeoutMillis = 1000 // of no meaning without a transactional id
	request.ProducerID, request.ProducerEpoch = -1, -1
	response, err := request.RequestWith(ctx, c.client)
	if err == nil {
		err = kerr.ErrorForCode(response.ErrorCode)
	}
	if err == nil {
		return
	}
	c.add(Finding{Code: "kafka.producer_id", Severity: Error, ExitCode: exitDenied, Observed: err.Error(), Required: "a producer id",
		Message: "The brokers give us no producer id, so nothing can be published.",
		Fix:     "grant IDEMPOTENT_WRITE on the cluster (before Kafka 2.8), or WRITE on a topic"})
}

func (c *checker) topics(ctx context.Context, names []string) error {
	var valid []string
	for _, name := range names {
		if fault := c.kafka.pump.router.fault(name); fault != "" {
			c.add(Finding{Code: "topic.not_allowed", Severity: Error, ExitCode: exitFound, Observed: fmt.Sprintf("%.300q", name), Required: "a topic that may be written",
				Message: "Events for this topic would be refused: " + fault + ".", Fix: "correct route.topics, route.template or route.allow"})
			continue
		}
		valid = append(valid, name)
	}
	if len(valid) == 0 {
		return nil
	}
	request := kmsg.NewPtrMetadataRequest()
	request.AllowAutoTopicCreation = false
	request.IncludeTopicAuthorizedOperations = true
	for _, name := range valid {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		request.Topics = append(request.Topics, topic)
	}
	response, err := request.RequestWith(ctx, c.client)
	if err != nil {
		return err
	}
	for i := range response.Topics {
		if c.topic(&response.Topics[i]) {
			if err := c.settings(ctx, &response.Topics[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// unknownOperations is what brokers send when they do not tell.
const unknownOperations = -2147483648

// topic checks existence and rights, and says whether its settings can be
// looked at.
func (c *checker) topic(t *kmsg.MetadataResponseTopic) bool {
	name := *t.Topic
	err := kerr.ErrorForCode(t.ErrorCode)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		severity, then := Warning, "its events will wait until it is created"
		if c.kafka.pump.router.refuses {
			severity, then = Error, "its events will be refused"
		}
		c.add(Finding{Code: "topic.missing", Severity: severity, ExitCode: exitFound, Observed: name + " does not exist", Required: "an existing topic",
			Message: "The topic " + name + " does not exist; " + then + ".",
			Fix:     "kafka-topics.sh --bootstrap-server " + c.kafka.pump.config.Brokers[0] + " --create --topic " + name})
		return false
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		c.denied(name, err.Error())
		return false
	case err != nil:
		c.add(Finding{Code: "topic.unusable", Severity: Error, ExitCode: exitFound, Observed: err.Error(), Required: "a topic with leaders",
			Message: "The topic " + name + " cannot be used now: " + judge(err).why + "."})
		return false
	}
	ops := t.AuthorizedOperations
	if ops != unknownOperations && ops&(1<<int(kmsg.ACLOperationWrite)) == 0 {
		c.denied(name, "WRITE is not among our rights")
	}
	return true
}

func (c *checker) denied(topic, observed string) {
	c.add(Finding{Code: "topic.write_denied", Severity: Error, ExitCode: exitDenied, Observed: observed, Required: "WRITE and DESCRIBE on " + topic,
		Message: "We may not write the topic " + topic + "; its events will wait.",
		Fix:     "kafka-acls.sh --add --allow-principal User:... --operation Write --operation Describe --topic " + topic})
}

func (c *checker) settings(ctx context.Context, t *kmsg.MetadataResponseTopic) error {
	name := *t.Topic
	request := kmsg.NewPtrDescribeConfigsRequest()
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, name
	resource.ConfigNames = []string{"max.message.bytes", "min.insync.replicas", "unclean.leader.election.enable"}
	request.Resources = append(request.Resources, resource)
	response, err := request.RequestWith(ctx, c.client)
	if err != nil {
		return err
	}
	set := map[string]string{}
	for _, r := range response.Resources {
		for _, setting := range r.Configs {
			if r.ErrorCode == 0 && setting.Value != nil {
				set[setting.Name] = *setting.Value
			}
		}
	}
	if len(set) == 0 {
		c.add(Finding{Code: "topic.settings_unreadable", Severity: Warning, Observed: "DescribeConfigs is not allowed", Required: "DESCRIBE_CONFIGS on " + name,
			Message: fmt.Sprintf("The settings of %s may not be read; records are checked against the brokers' default of %d bytes.", name, defaultMaxMessageBytes),
			Fix:     "kafka-acls.sh --add --allow-principal User:... --operation DescribeConfigs --topic " + name})
		return nil
	}
	c.limits(name, set)
	c.durability(t, set)
	return nil
}

func (c *checker) limits(name string, set map[string]string) {
	topic, err := strconv.Atoi(set["max.message.bytes"])
	if err != nil {
		return
	}
	limit, from := topic, limitFromTopic
	if ours := c.kafka.pump.config.RecordBytes; ours < limit {
		limit, from = ours, limitFromConfig
	}
	c.add(Finding{Code: "topic.max_message_bytes", Severity: Info, Observed: strconv.Itoa(topic),
		Message: fmt.Sprintf("Records for %s may have %d bytes uncompressed (%s); larger ones are refused.", name, limit, from)})
}

// durability compares what an acknowledgement needs with what there is.
func (c *checker) durability(t *kmsg.MetadataResponseTopic, set map[string]string) {
	name := *t.Topic
	least, err := strconv.Atoi(set["min.insync.replicas"])
	if err != nil || len(t.Partitions) == 0 {
		return
	}
	replicas := len(t.Partitions[0].Replicas)
	for i := range t.Partitions {
		replicas = min(replicas, len(t.Partitions[i].Replicas))
	}
	observed := fmt.Sprintf("min.insync.replicas %d, %d replicas", least, replicas)
	alter := "kafka-configs.sh --alter --entity-type topics --entity-name " + name + " --add-config "
	switch {
	case least > replicas:
		c.add(Finding{Code: "topic.min_insync_impossible", Severity: Error, ExitCode: exitFound, Observed: observed, Required: "min.insync.replicas below the replicas",
			Message: "Brokers before Kafka 4 acknowledge nothing on " + name + ", so its events wait; later ones count the replicas that there are.", Fix: alter + "min.insync.replicas=" + strconv.Itoa(max(1, replicas-1))})
	case least == replicas && replicas > 1:
		c.add(Finding{Code: "topic.min_insync_tight", Severity: Warning, Observed: observed, Required: "min.insync.replicas below the replicas",
			Message: "One broker that is down stops " + name + ".", Fix: alter + "min.insync.replicas=" + strconv.Itoa(replicas-1)})
	case least == 1:
		c.add(Finding{Code: "topic.min_insync_weak", Severity: Warning, Observed: observed, Required: "min.insync.replicas of 2 or more",
			Message: "An acknowledgement on " + name + " may stand for a single copy, which one lost broker takes along.", Fix: alter + "min.insync.replicas=2"})
	}
	if set["unclean.leader.election.enable"] == "true" {
		c.add(Finding{Code: "topic.unclean_election", Severity: Warning, Observed: "unclean.leader.election.enable is true", Required: "false",
			Message: "A replica that lags may become leader of " + name + " and lose acknowledged records.", Fix: alter + "unclean.leader.election.enable=false"})
	}
}
