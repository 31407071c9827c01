export { lookup } from 'node:dns/promises';
