/**
 * `verbena rds-info`: what the nodes of this user on this machine say of themselves, with the
 * options of rds-tools' rds-info, and the texts of seed 003.
 */
import { askNodes } from '../../rds/info-server.js';
import { Exit, complain, printLine } from '../base/report.js';

export interface RdsInfoOptions {
  readonly counters?: boolean;
  readonly sockets?: boolean;
  readonly connections?: boolean;
  readonly config?: boolean;
  readonly stats?: boolean;
  readonly set?: string;
  readonly node?: string;
  readonly json?: boolean;
}

/** In the order that they are printed in. */
const TITLES = {
  counters: 'Counters',
  sockets: 'RDS Sockets',
  connections: 'RDS Connections',
  config: undefined,
  stats: undefined,
  info: undefined,
} as const;

export async function rdsInfo(options: RdsInfoOptions): Promise<number> {
  const { set, node, json } = options;
  const chosen = Object.keys(TITLES) as (keyof typeof TITLES)[];
  const asked = chosen.filter((name) => name !== 'info' && options[name]);
  let questions: string[] = asked;
  if (set !== undefined) questions = [`set ${set}`, ...asked];
  else if (asked.length === 0) questions = ['info'];
  let isAnswered = false;
  for (const question of questions) {
    const answers = await askNodes(question, node);
    isAnswered ||= answers.length > 0;
    if (question.startsWith('set ')) continue;
    for (const answer of answers) {
      if (json) {
        await printLine(JSON.stringify({ node: answer.node, [question]: answer.text }));
        continue;
      }
      const title = TITLES[question as keyof typeof TITLES];
      await printLine(`# ${answer.node}${title === undefined ? '' : ` ${title}`}`);
      await printLine(answer.text);
    }
  }
  if (isAnswered) return Exit.OK;
  complain('rds-info', `no node of reliable datagrams runs here${node ? ` at ${node}` : ''}`);
  return Exit.FAILED;
}
