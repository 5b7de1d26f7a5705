/**
 * The baseline for MCP: a minimal bridge from streamable HTTP to stdio, with one child process per session and
 * without checks or limits. It removes some tools from lists, as rules about tools do.
 */
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";

const [port, command, ...args] = process.argv.slice(2);
const sessions = new Map();
const IS_SHOWN = /^(echo|tool1)/;

createServer((req, res) => {
  const chunks = [];
  req.on("data", (chunk) => chunks.push(chunk));
  req.on("end", () => {
    const text = Buffer.concat(chunks).toString();
    const message = JSON.parse(text);
    let id = req.headers["mcp-session-id"];
    if (message.method === "initialize") {
      id = randomUUID();
      sessions.set(id, open());
    }
    const session = sessions.get(id);
    if (message.id === undefined) res.writeHead(202).end();
    else session.waiting.set(message.id, { res, id });
    session.child.stdin.write(`${text}\n`);
  });
}).listen(Number(port), "127.0.0.1");

function open() {
  const session = { child: spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] }), waiting: new Map() };
  let rest = "";
  session.child.stdout.setEncoding("utf8").on("data", (chunk) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const message = JSON.parse(line);
      const { tools } = message.result ?? {};
      if (tools !== undefined) message.result.tools = tools.filter(({ name }) => IS_SHOWN.test(name));
      const text = tools === undefined ? line : JSON.stringify(message);
      const waiting = session.waiting.get(message.id);
      session.waiting.delete(message.id);
      waiting?.res.writeHead(200, { "content-type": "text/event-stream", "mcp-session-id": waiting.id });
      waiting?.res.end(`event: message\ndata: ${text}\n\n`);
    }
  });
  return session;
}
