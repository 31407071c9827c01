// A CoAP client: ADDRESS PORT COUNT. Asks for some seconds, then that often without being confirmed,
// then once with.
const coap = require('coap');

const [host, port, count] = process.argv.slice(2);
let answers = 0;

function ask(pathname, confirmable) {
  return new Promise((resolve) => {
    const request = coap.request({ host, port: Number(port), pathname, confirmable });
    request.on('response', (response) => {
      if (`${response.payload}` !== `you asked for ${pathname}`)
        throw new Error(`${response.payload}`);
      answers++;
      resolve();
    });
    request.end();
  });
}

async function main() {
  for (const end = Date.now() + 4000; Date.now() < end;) {
    ask('/first', false);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  await ask('/first', true);
  answers = 0;
  for (let index = 0; index < Number(count); index++) void ask(`/${index}`, false);
  // Repeated until it is answered: what has no answer by then will have none.
  await ask('/last', true);
  console.log(`${answers - 1} of ${count}`);
  process.exit();
}
void main();
