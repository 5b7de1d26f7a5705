/**
 * Lists the examples that `--help` prints for each command. A test checks that every command has an example.
 */
import type { Command } from "commander";
import { wrapWords } from "./terminal/table.ts";

const EXAMPLES: Readonly<Record<string, string>> = {
  status: `
  gwctl status                                       the gateway on this machine
  gwctl -p 15001 status                              one with another admin port (also GWCTL_ADMIN_PORT=15001)
  gwctl status gateway/edge -n prod                  one in a cluster
  gwctl status -o json | jq .problems                for scripts`,
  top: `
  gwctl top                                          routes, tools, models and keys on one screen
  gwctl top --by key --interval 5                    who sends most, and what it costs
  gwctl top --once -o json | jq .route               for scripts`,
  explain: `
  gwctl explain 7f1c20b6a94e3d58                     the x-request-id of the response
  gwctl explain 7f1c20b6a94e3d58 -o json`,
  upgrade: `
  gwctl upgrade                                      after the files of the program were replaced`,
  requests: `
  gwctl requests                                     the last 20
  gwctl requests --failed --limit 100                those that were rejected or failed
  gwctl requests --status 5xx --since 1h --route shop
  gwctl requests --key alice --model gpt-4o -o json
  gwctl requests --before 2026-11-17T03:00:00Z       older ones, from the history database
  gwctl requests --follow                            each one as it ends
  gwctl requests --follow --failed -o json | jq .id  JSON lines`,
  usage: `
  gwctl usage --by team,model --since 30d            what each team used and paid
  gwctl usage --by day --filter user=ada --since 7d  one user by day
  gwctl usage --by user -o csv > usage.csv           for a spreadsheet`,
  "history status": `
  gwctl history status                               rows that are stored, waiting and dropped`,
  "history budgets": `
  gwctl history budgets                              accounts whose budget and history differ`,
  "history delete": `
  gwctl history delete --subject ada                 after a privacy request`,
  policies: `
  gwctl policies
  gwctl policies --file dump.json -o yaml            of a saved dump`,
  cel: `
  gwctl cel '"admin" in ["admin", "dev"]'
  gwctl cel 'request.path.startsWith("/mcp")' --request 7f1c20b6a94e3d58`,
  budgets: `
  gwctl budgets                                      what was spent, the most first
  gwctl budgets --key alice                          of one user`,
  "keys create": `
  gwctl keys create --name alice --expires 90d --models 'gpt-4o-mini,claude-*' --cost 20 --per month
  gwctl keys create --name ci --metadata team=build > key.txt`,
  "keys list": `
  gwctl keys list                                    id, models, budget, expiry and metadata`,
  "keys revoke": `
  gwctl keys revoke 3f9c02a17be4                     the id of gwctl keys list`,
  "prices import": `
  gwctl prices import model_prices_and_context_window.json -o prices.json
  gwctl prices import model_prices_and_context_window.json --provider openai anthropic > prices.json`,
  "gateway list": `
  gwctl gateway list -A                              of all namespaces`,
  access: `
  gwctl access                                       each route, tool and model, and who may use it
  gwctl access --who-can tool:files/delete_file      who may call this tool, and by which rule
  gwctl access --what-can team:research --denied     what a team may use, and what not
  gwctl access --principals people.yaml -o csv       for auditors, with claim sets of a file
  gwctl access --diff new.yaml --exit-code           in CI: fails if anybody gains or loses access`,
  "shadow report": `
  gwctl shadow report                                whom policies in shadow mode would deny`,
  "mirror report": `
  gwctl mirror report                                where a mirror answers differently`,
  record: `
  gwctl record -o traffic.jsonl --count 1000         the next 1,000 requests
  gwctl record -o traffic.jsonl --last               what the gateway remembers
  gwctl record -o traffic.jsonl --sample 0.1 --seconds 60`,
  replay: `
  gwctl replay traffic.jsonl --to http://localhost:3000
  gwctl replay traffic.jsonl --to http://localhost:3000 --speed max --policies -H "authorization: Bearer $TOKEN"`,
  "what-if": `
  gwctl what-if GET http://localhost:3000/hello
  gwctl what-if POST http://localhost:3000/mcp --tool echo --claims '{"sub":"alice"}'`,
  "mcp tools": `
  gwctl mcp tools                                    every tool, its server, and whether clients see it
  gwctl mcp tools --server github -o json`,
  "mcp connections": `
  gwctl mcp connections                              who connected an account where
  gwctl mcp connections --test 3f9c2b1a7d5e8046      does the server still accept its token
  gwctl mcp connections --revoke 3f9c2b1a7d5e8046    forget it, here and at the server`,
  "mcp lock": `
  gwctl mcp lock                                     pin the tools of all servers in tools.lock
  gwctl mcp lock --check                             for a pipeline: exit code 1 if anything differs
  gwctl mcp lock --only github/create_issue          accept one changed tool`,
  "auth check": `
  gwctl auth check -f config.yaml
  gwctl auth check -f config.yaml --token-file token.txt`,
  import: `
  gwctl import ~/.cursor/mcp.json > config.yaml
  gwctl import litellm.yaml > config.yaml
  gwctl import --from agentgateway config.yaml > ours.yaml`,
  version: `
  gwctl version`,
  completion: `
  source <(gwctl completion bash)                    in ~/.bashrc; zsh likewise in ~/.zshrc
  gwctl completion fish | source                     in ~/.config/fish/config.fish`,
  "proxy trace": `
  gwctl proxy trace --local                          wait for the next request, then step through it (q to quit)
  gwctl proxy trace --local --raw > trace.jsonl      save a trace; open it with gwctl proxy trace --file trace.jsonl
  gwctl proxy trace --local --port 3000 -- http://localhost:3000/mcp -H 'accept: application/json'
                                                     send a request to 127.0.0.1:3000 and trace it; the URL's host
                                                     becomes the Host header and is not resolved
  gwctl proxy trace --local --expression 'request.method == "POST"' --count 3

The trace is experimental: its events may change between versions.`,
  "proxy config all": `
  gwctl proxy config all
  gwctl proxy config all -o json > dump.json`,
  "proxy config listeners": `
  gwctl proxy config listeners`,
  "proxy config routes": `
  gwctl proxy config routes
  gwctl proxy config routes --file dump.json         of a saved dump`,
  "proxy config backends": `
  gwctl proxy config backends -o yaml`,
  "proxy profile cpu": `
  gwctl proxy profile cpu --seconds 10 -o cpu.pb.gz
  go tool pprof -http : cpu.pb.gz                    look at it`,
  "proxy profile heap": `
  gwctl proxy profile heap -o heap.pb.gz`,
  "proxy log": `
  gwctl proxy log                                    show the level
  gwctl proxy log --level debug
  gwctl proxy log --set mcp=trace                    one module; the rest stays`,
  "mcp servers": `
  gwctl mcp servers                                  which MCP servers run, which failed, and why
  gwctl mcp servers -o json`,
  sessions: `
  gwctl sessions                                     which clients are connected, and when each was last active`,
  routes: `
  gwctl routes
  gwctl routes -o yaml                               with policies and backends`,
  validate: `
  gwctl validate -f config.yaml
  gwctl validate -f config.yaml --strict -o github   in GitHub Actions: annotations at the lines`,
  "proxy memory": `
  gwctl proxy memory
  gwctl proxy memory -o json | jq .heap`,
  "proxy tasks": `
  gwctl proxy tasks                                  listeners, requests in flight, sessions, child processes`,
  limits: `
  gwctl limits
  gwctl limits --key alice                           buckets of one user`,
};

export function addExamples(program: Command, columns: number): void {
  visit(program, [], columns);
}

function visit(command: Command, path: readonly string[], columns: number): void {
  const text = EXAMPLES[path.join(" ")];
  if (text !== undefined) {
    const lines = text.split("\n").flatMap((line) => wrapExample(line, columns));
    command.addHelpText("after", `\nExamples:${lines.join("\n")}`);
  }
  for (const child of command.commands) visit(child, [...path, child.name()], columns);
}

const COMMENT_INDENT = 6;

/** Moves a comment that does not fit below its command. */
function wrapExample(line: string, columns: number): string[] {
  const [, command = line, comment] = /^( {2}\S.*?|)(?: {2,}(\S.*))?$/.exec(line) ?? [];
  if (line.length <= columns || comment === undefined) return [line];
  const wrapped = wrapWords(comment, columns - COMMENT_INDENT).map(
    (one) => `${" ".repeat(COMMENT_INDENT)}${one.trimEnd()}`,
  );
  return command === "" ? wrapped : [command, ...wrapped];
}
