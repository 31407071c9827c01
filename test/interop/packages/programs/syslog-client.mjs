import syslog from 'syslog-client';
import SyslogServer from 'syslog-server';

export async function serve(address, say) {
  const server = new SyslogServer();
  server.on('message', ({ message }) => say(/message \d+/.exec(message)[0]));
  await server.start({ port: 5305, address });
}

export async function ask(address) {
  const transport = syslog.Transport.Udp;
  const client = syslog.createClient(address, { port: 5305, transport });
  const log = (text) => new Promise((resolve) => client.log(text, {}, resolve));
  for (let index = 0; index < 100; index++) await log(`message ${index}`);
  client.close();
}
