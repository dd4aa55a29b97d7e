package kafkaserver

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// properties gives the configuration of node n.
func (c *Cluster) properties(n *node) map[string]string {
	copies := strconv.Itoa(c.options.Nodes)
	inSync := strconv.Itoa(min(2, c.options.Nodes))
	p := map[string]string{
		"process.roles":                                    "broker,controller",
		"node.id":                                          strconv.Itoa(n.id),
		"controller.listener.names":                        string(controller),
		"inter.broker.listener.name":                       string(Plain),
		"log.dirs":                                         n.data(),
		"auto.create.topics.enable":                        "false",
		"default.replication.factor":                       copies,
		"offsets.topic.replication.factor":                 copies,
		"offsets.topic.num.partitions":                     "3",
		"group.initial.rebalance.delay.ms":                 "0",
		"transaction.state.log.num.partitions":             "3",
		"transaction.state.log.min.isr":                    inSync,
		"transaction.state.log.replication.factor":         copies,
		"share.coordinator.state.topic.min.isr":            inSync,
		"share.coordinator.state.topic.replication.factor": copies,
		// Records keep the times that the test gives them, which may be years ago.
		"log.retention.ms": "-1",
		// The default reserves a third of the heap.
		"log.cleaner.dedupe.buffer.size": "4194304",
		// A dead broker is noticed in seconds, not in nine.
		"broker.session.timeout.ms":             "3000",
		"broker.heartbeat.interval.ms":          "500",
		"controller.quorum.election.timeout.ms": "1000",
		"controller.quorum.fetch.timeout.ms":    "2000",
	}
	if n.outside != "" {
		outside(p, n.outside)
	} else {
		c.addresses(p, n)
	}
	c.security(p)
	maps.Copy(p, c.options.Settings)
	return p
}

// addresses sets who listens where.
func (c *Cluster) addresses(p map[string]string, n *node) {
	var voters, listen, protocol []string
	for _, other := range c.nodes {
		voters = append(voters, fmt.Sprintf("%d@%s", other.id, other.address(controller)))
	}
	for _, l := range append(slices.Clone(c.options.Listeners), controller) {
		listen = append(listen, fmt.Sprintf("%s://%s", l, n.address(l)))
		protocol = append(protocol, fmt.Sprintf("%s:%s", l, protocols[l]))
	}
	p["controller.quorum.voters"] = strings.Join(voters, ",")
	p["listeners"] = strings.Join(listen, ",")
	p["advertised.listeners"] = strings.Join(listen[:len(listen)-1], ",")
	p["listener.security.protocol.map"] = strings.Join(protocol, ",")
}

// outside sets the listeners of a node elsewhere, which cannot reach itself at
// the address that its clients use.
func outside(p map[string]string, address string) {
	const inside, voter = "INSIDE://127.0.0.1:9094", "127.0.0.1:9093"
	p["inter.broker.listener.name"] = "INSIDE"
	p["controller.quorum.voters"] = "1@" + voter
	p["listeners"] = fmt.Sprintf("%s://0.0.0.0:%d,%s,%s://%s", Plain, RemotePort, inside, controller, voter)
	p["advertised.listeners"] = fmt.Sprintf("%s://%s,%s", Plain, address, inside)
	p["listener.security.protocol.map"] = fmt.Sprintf("%s:PLAINTEXT,INSIDE:PLAINTEXT,%s:PLAINTEXT", Plain, controller)
}

// security sets certificates and users where a listener needs them.
func (c *Cluster) security(p map[string]string) {
	for _, l := range c.options.Listeners {
		name := "listener.name." + strings.ToLower(string(l)) + "."
		if l == TLS || l == SASLTLS {
			p[name+"ssl.keystore.type"] = "PEM"
			p[name+"ssl.keystore.location"] = c.dir + "/server.pem"
			p[name+"ssl.truststore.type"] = "PEM"
			p[name+"ssl.truststore.location"] = c.CAFile()
		}
		if l == TLS {
			p[name+"ssl.client.auth"] = "requested"
		}
		if l == SASL || l == SASLTLS {
			const scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
			p[name+"sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
			p[name+"plain.sasl.jaas.config"] = plainUsers(c.options.Users)
			p[name+"scram-sha-256.sasl.jaas.config"] = scram
			p[name+"scram-sha-512.sasl.jaas.config"] = scram
		}
	}
}

func plainUsers(users []User) string {
	b := "org.apache.kafka.common.security.plain.PlainLoginModule required"
	for _, u := range users {
		b += fmt.Sprintf(" user_%s=%q", u.Name, u.Password)
	}
	return b + ";"
}

// format writes a properties file in a stable order. Java reads such files as
// Latin-1, so everything beyond ASCII is escaped.
func format(p map[string]string) []byte {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(p)) {
		b.WriteString(k + "=")
		for _, r := range p[k] {
			switch {
			case r == '\\':
				b.WriteString(`\\`)
			case r > '~':
				for _, unit := range utf16.Encode([]rune{r}) {
					fmt.Fprintf(&b, `\u%04x`, unit)
				}
			default:
				b.WriteRune(r)
			}
		}
		b.WriteByte('\n')
	}
	return []byte(b.String())
}

// logging sends warnings to standard output, which is the node's log file.
const logging = `rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1} %m%n
`
