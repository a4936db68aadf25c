// Drives a daemon with nsqjs and prints the results as one JSON line.
// node drive.js PORT SCENARIO [OPTIONS]
const nsq = require('nsqjs');

const port = Number(process.argv[2]);
const scenario = process.argv[3];
const ways = JSON.parse(process.argv[4] || '{}'); // connection options: tls, deflate, snappy
const seen = [];
const report = (extra = {}) => {
  console.log(JSON.stringify({ seen, ...extra }));
  process.exit(0);
};
setTimeout(() => { console.error('nothing more came'); console.log(JSON.stringify({ seen })); process.exit(1); }, 150000);

const writer = () => new Promise((resolve, reject) => {
  const one = new nsq.Writer('127.0.0.1', port, { clientId: 'writer', ...ways });
  one.on('ready', () => resolve(one));
  one.on('error', reject);
  one.connect();
});
const publish = (one, topic, what) => new Promise((resolve, reject) =>
  one.publish(topic, what, error => (error ? reject(error) : resolve())));
const reader = (topic, channel, options, onMessage) => {
  const one = new nsq.Reader(topic, channel, { nsqdTCPAddresses: [`127.0.0.1:${port}`], ...ways, ...options });
  one.on('message', onMessage);
  one.on('error', error => { console.error(error); process.exit(1); });
  one.connect();
  return one;
};

const scenarios = {
  // publish and multi-publish, consumed by two channels
  async fan() {
    const done = message => {
      seen.push(message.body.toString());
      message.finish();
      if (seen.length === 8) report();
    };
    reader('fan', 'one', { maxInFlight: 5 }, done);
    reader('fan', 'two', { maxInFlight: 5 }, done);
    await new Promise(resolve => setTimeout(resolve, 500));
    const one = await writer();
    await publish(one, 'fan', 'single');
    await publish(one, 'fan', ['a', 'b', 'c']);
  },
  // each message is requeued once, then finished
  async requeue() {
    reader('again', 'c', { maxInFlight: 2 }, message => {
      seen.push([message.body.toString(), message.attempts]);
      if (message.attempts === 1) message.requeue(100, false);
      else message.finish();
      if (seen.length === 4) report();
    });
    const one = await writer();
    await publish(one, 'again', ['x', 'y']);
  },
  // deferred, then touched while it is worked on for longer than its time-out
  async defer() {
    const began = Date.now();
    reader('later', 'c', { maxInFlight: 1, messageTimeout: 3000 }, message => {
      const waited = Date.now() - began;
      let touches = 0;
      const timer = setInterval(() => {
        message.touch();
        touches += 1;
        if (touches === 4) {
          clearInterval(timer);
          message.finish();
          seen.push([message.body.toString(), message.attempts]);
          setTimeout(() => report({ waited }), 1500);
        }
      }, 1000);
    });
    const one = await writer();
    await new Promise((resolve, reject) =>
      one.deferPublish('later', ['x'], 700, error => (error ? reject(error) : resolve())));
  },
  // nodes that come and go, found through the nsqlookupd of the options
  async found() {
    reader('orders', 'work', { nsqdTCPAddresses: [], lookupdPollInterval: 1 }, message => {
      seen.push(message.body.toString());
      message.finish();
      if (seen.length === 3) report();
    });
  },
};

scenarios[scenario]().catch(error => { console.error(error); process.exit(1); });
