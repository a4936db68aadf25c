// Publishes with squeaky and prints the consumed messages as one JSON line.
// node squeaky.js PORT
const { Publisher, Subscriber } = require('squeaky');

const port = Number(process.argv[2]);
const seen = [];
setTimeout(() => { console.error('nothing more came'); console.log(JSON.stringify({ seen })); process.exit(1); }, 150000);
const fail = error => { console.error(error); process.exit(1); };

const subscriber = new Subscriber({ port, topic: 'squeaky', channel: 'c', concurrency: 5 });
subscriber.on('error', fail);
subscriber.on('message', message => {
  seen.push(message.body);
  message.finish();
  if (seen.length === 6) {
    console.log(JSON.stringify({ seen }));
    process.exit(0);
  }
});
subscriber.once('ready', async () => {
  const publisher = new Publisher({ port, topic: 'squeaky' });
  publisher.on('error', fail);
  try {
    // Two batches, and one message between: each must be answered, and no part of one may be taken for the next.
    await publisher.publish([{ n: 1 }, { n: 2 }]);
    await publisher.publish({ n: 3 });
    await publisher.publish([{ n: 4 }, { n: 5 }, { n: 6 }]);
  } catch (error) {
    fail(error);
  }
});
