import { createSocket } from 'node:dgram';
import winston from 'winston';
import { Syslog } from 'winston-syslog';

export async function serve(address, say) {
  const socket = createSocket('udp4', (data) => say(/line \d+/.exec(`${data}`)[0]));
  await new Promise((resolve) => socket.bind(5327, address, resolve));
}

export async function ask(address) {
  const transport = new Syslog({ host: address, port: 5327, protocol: 'udp4' });
  const logger = winston.createLogger({
    levels: winston.config.syslog.levels,
    transports: [transport],
  });
  for (let index = 0; index < 30; index++) {
    logger.info(`line ${index}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  logger.close();
}
