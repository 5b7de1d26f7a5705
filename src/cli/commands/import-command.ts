/**
 * `gwctl import <kind> <file>` converts another program's configuration, validates the result with the gateway's
 * loader, and prints it. Comments at the top list what was omitted or works differently.
 */
import { readFileSync } from "node:fs";
import { importAgentgateway } from "../import/agentgateway.ts";
import type { Conversion, Values } from "../import/conversion.ts";
import { type Check, dropInvalid } from "../import/drop-invalid.ts";
import { importLitellm } from "../import/litellm.ts";
import { importMcpServers } from "../import/mcp-servers.ts";
import { importSupergateway } from "../import/supergateway.ts";
import { CliError, printable, type Terminal } from "../terminal/terminal.ts";

const KINDS: Readonly<Record<string, (text: string, parse: (text: string) => unknown) => Conversion>> = {
  mcpServers: (text, parse) => importMcpServers(parse(withoutComments(text))),
  agentgateway: (text, parse) => importAgentgateway(parse(text)),
  litellm: (text, parse) => importLitellm(parse(text)),
  supergateway: (text) => importSupergateway(text),
};

export async function importConfig(kind: string, file: string, terminal: Terminal): Promise<void> {
  const convert = Object.hasOwn(KINDS, kind) ? KINDS[kind] : undefined;
  if (!convert) throw new CliError(`there is no import of ${kind}; there is ${Object.keys(KINDS).join(", ")}`, 2);
  const [{ loadConfig }, { parseYaml, yamlText }] = await Promise.all([
    import("../../config/load/load.ts"),
    import("../terminal/terminal.ts"),
  ]);
  const check: Check = (config, environment) => {
    const loaded = loadConfig([{ file: "imported", text: yamlText(config) }], {
      ...environment,
      ...terminal.environment,
    });
    return loaded.ok ? [] : loaded.problems;
  };
  let conversion: Conversion;
  try {
    conversion = convert(readText(file, terminal), parseYaml);
    dropInvalid(conversion, check);
  } catch (error) {
    throw new CliError(`cannot import ${file}: ${(error as Error).message.split("\n", 1)[0]}`);
  }
  terminal.out(`${commentsOf(conversion, kind)}${yamlText(conversion.config as Values)}`);
  const { leftOut, differs, closed } = conversion;
  terminal.err(
    `gwctl: ${leftOut.length} left out, ${differs.length} different, ${closed.length} closed: see the comments at the top\n`,
  );
}

function readText(file: string, terminal: Terminal): string {
  return file === "-" ? terminal.readStdin() : readFileSync(file, "utf8");
}

function withoutComments(text: string): string {
  return text.replaceAll(/^\s*\/\/.*$/gm, "");
}

function commentsOf({ leftOut, differs, closed }: Conversion, kind: string): string {
  const list = (title: string, lines: readonly string[]): string =>
    lines.length === 0 ? "" : `#\n# ${title}\n${[...new Set(lines)].map((line) => `# - ${oneLine(line)}\n`).join("")}`;
  return [
    `# Imported from ${kind} by gwctl. Check it: gateway --validate-only -f <this file>\n`,
    list("CLOSED: every request is rejected here (authorization) until you protect it another way:", closed),
    list("Left out:", leftOut),
    list("Works differently here:", differs),
    "\n",
  ].join("");
}

/** A line break would end the YAML comment. */
function oneLine(text: string): string {
  return printable(text.replaceAll(/\s+/g, " "));
}
