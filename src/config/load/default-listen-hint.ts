/**
 * What moves a listener of the embedded default, which nobody wrote: its ports are variables, its admin address can
 * only be moved by a file.
 */

/** As every problem begins; nobody can look into the embedded default. */
const PLACE = /^<default>:\d+:\d+: /;
const LISTENER = /^gateways\.(default|llm)\.port: cannot listen on /;
const PROCESS = /^config\.(?:adminAddr|statsAddr): cannot listen on /;

/** A line of another kind comes back as it is. */
export function defaultListenHint(line: string): string {
  const said = line.replace(PLACE, "");
  const [, name] = LISTENER.exec(said) ?? [];
  if (name !== undefined)
    return `${said} (the environment variable ${name === "llm" ? "LLM_PORT" : "PORT"} moves this port)`;
  return PROCESS.test(said) ? `${said} (with a file of your own: \`-f\` and \`config.adminAddr\`)` : line;
}
