// A DNS client: ADDRESS PORT COUNT. Asks for some seconds, then that many names at once, then one
// until there is an answer.
import dns2 from 'dns2';

const [address, port, count] = process.argv.slice(2);
let answers = 0;

async function ask(number, timeout) {
  const resolve = dns2.UDPClient({ dns: address, port: Number(port), timeout });
  const { answers: found } = await resolve(`${number}.test`);
  if (found[0].address !== `10.0.0.${number}`) throw new Error(found[0].address);
  answers++;
}

for (const end = Date.now() + 3000; Date.now() < end;) {
  await ask(254, 500).catch(() => {});
  await new Promise((resolve) => setTimeout(resolve, 20));
}
answers = 0;
for (let number = 0; number < Number(count); number++) void ask(number, 0);
for (let isTold = false; !isTold;) {
  isTold = await ask(255, 5000).then(
    () => true,
    () => false,
  );
}
// Earlier answers come first.
await new Promise(setImmediate);
console.log(`${answers - 1} of ${count}`);
process.exit();
