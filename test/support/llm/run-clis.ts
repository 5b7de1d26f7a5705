/**
 * The program behind `npm run clis`: runs Claude Code, Codex and Gemini CLI through a gateway with mocks of five
 * providers, with text, a tool and an image. Prints a table and exits with 1 if a call fails.
 */
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startGateway } from "../gateway.ts";
import { fixturePath } from "../mcp/fixture.ts";
import { SAW_IMAGE, SAW_TEXT, SAW_TOOL, startCliProvider } from "./cli-provider.ts";
import { PNG } from "./client-dialect.ts";

const [binaries = "", only = ""] = process.argv.slice(2);
const TURN_LIMIT_MS = 120_000;
const AWS = "{ aws: { accessKeyId: AKIDEXAMPLE, secretAccessKey: wJalrXUtnFEMI } }";

const PROVIDERS: readonly { name: string; provider: string; auth: string; model: string }[] = [
  { name: "openai", provider: '{ openAICompatible: { baseUrl: "http://x.test/v1", name: openai, responses: false } }', auth: "{ key: k }", model: "stand-in" },
  { name: "anthropic", provider: "{ anthropic: {} }", auth: "{ key: k }", model: "claude-sonnet-4-5" },
  { name: "gemini", provider: "{ gemini: {} }", auth: "{ key: k }", model: "gemini-2.5-pro" },
  { name: "vertex", provider: "{ vertex: { projectId: p } }", auth: "{ key: k }", model: "gemini-2.5-pro" },
  { name: "bedrock", provider: "{ bedrock: { region: eu-west-1 } }", auth: AWS, model: "amazon.nova-pro-v1:0" },
]; // biome-ignore format: a table

interface Cli {
  readonly name: string;
  command(
    url: string,
    home: string,
    prompt: string,
    image: string | undefined,
  ): { args: string[]; env: Record<string, string> };
}

const CLIS: readonly Cli[] = [
  {
    name: "claude",
    command: (url, home, prompt) => ({
      args: ["-p", prompt, "--model", "any-model", "--allowedTools", "Bash,Read", "--add-dir", home],
      env: {
        ANTHROPIC_BASE_URL: url,
        ANTHROPIC_API_KEY: "sk-ant-client",
        ANTHROPIC_SMALL_FAST_MODEL: "any-model",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
        DISABLE_AUTOUPDATER: "1",
        CLAUDE_CONFIG_DIR: join(home, ".claude"),
      },
    }),
  },
  {
    name: "codex",
    command(url, home, prompt, image) {
      mkdirSync(join(home, ".codex"), { recursive: true });
      writeFileSync(
        join(home, ".codex/config.toml"),
        `model = "any-model"\nmodel_provider = "gateway"\n[model_providers.gateway]\nname = "gateway"\nbase_url = "${url}/v1"\nenv_key = "GATEWAY_KEY"\nwire_api = "responses"\n[mcp_servers.odd]\ncommand = ${JSON.stringify(process.execPath)}\nargs = ${JSON.stringify([fixturePath("odd-server")])}\n`,
      );
      const attached = image === undefined ? [] : ["-i", image];
      return {
        args: ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt, ...attached],
        env: { GATEWAY_KEY: "client", CODEX_HOME: join(home, ".codex") },
      };
    },
  },
  {
    name: "gemini",
    command(url, home, prompt, image) {
      mkdirSync(join(home, ".gemini"), { recursive: true });
      writeFileSync(
        join(home, ".gemini/settings.json"),
        JSON.stringify({
          security: { auth: { selectedType: "gemini-api-key" }, folderTrust: { enabled: false } },
          telemetry: { enabled: false },
        }),
      );
      return {
        args: ["-p", image === undefined ? prompt : `${prompt} @picture.png`, "-m", "gemini-2.5-pro", "--yolo"],
        env: { GOOGLE_GEMINI_BASE_URL: url, GEMINI_API_KEY: "client", GEMINI_CLI_TRUST_WORKSPACE: "true" },
      };
    },
  },
];

const folder = mkdtempSync(join(tmpdir(), "gateway-clis-"));
const TURNS: readonly { name: string; prompt: string; saw: string; only?: string }[] = [
  { name: "text", prompt: "Say hello.", saw: SAW_TEXT },
  { name: "tool", prompt: "PLEASE-USE-TOOL once.", saw: SAW_TOOL },
  { name: "mcp", prompt: "PLEASE-USE-MCP once.", saw: SAW_TOOL, only: "codex" },
  { name: "image", prompt: "PLEASE-USE-IMAGE", saw: SAW_IMAGE },
];

const provider = await startCliProvider();
const gateway = await startGateway(`
gateways: { ${PROVIDERS.map(({ name }) => `${name}: { port: 0 }`).join(", ")} }
routes:
${PROVIDERS.map(({ name, provider: config, auth, model }) => `  - { gateways: ${name}, policies: { ai: { modelAliases: { "*": "${model}" } } }, backends: [{ ai: { provider: ${config}, auth: ${auth}, hostOverride: "${provider.host}" } }] }`).join("\n")}
`);
let failed = 0;
try {
  for (const cli of CLIS.filter(({ name }) => only === "" || name === only)) {
    for (const { name } of PROVIDERS) {
      for (const turn of TURNS.filter((one) => one.only === undefined || one.only === cli.name)) {
        const home = mkdtempSync(join(folder, `${cli.name}-`));
        const image = join(home, "picture.png");
        writeFileSync(image, Buffer.from(PNG, "base64"));
        provider.imagePath = image;
        const attached = turn.saw === SAW_IMAGE ? image : undefined;
        const { args, env } = cli.command(gateway.url(name), home, turn.prompt, attached);
        const before = provider.refusals.length;
        const output = await run(join(binaries, cli.name), args, { ...env, HOME: home }, home);
        const works = output.includes(turn.saw);
        if (!works) failed += 1;
        console.log(`${works ? "ok  " : "FAIL"} ${cli.name} ${name} ${turn.name}`);
        if (!works)
          console.log(
            output.slice(-1500),
            provider.refusals.slice(before),
            provider.bodies.slice(-2).map((body) => body.slice(0, 400)),
          );
      }
    }
  }
} finally {
  await gateway.close();
  await provider.close();
  rmSync(folder, { recursive: true, force: true });
}
process.exitCode = failed === 0 ? 0 : 1;

function run(command: string, args: readonly string[], env: Record<string, string>, cwd: string): Promise<string> {
  return new Promise((resolve) => {
    const child = spawn(command, args, {
      cwd,
      env: { PATH: process.env.PATH ?? "", NO_COLOR: "1", ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let output = "";
    const take = (chunk: Buffer): void => {
      output += chunk.toString();
    };
    child.stdout.on("data", take);
    child.stderr.on("data", take);
    const timer = setTimeout(() => child.kill("SIGKILL"), TURN_LIMIT_MS);
    child.on("error", (error) => take(Buffer.from(String(error))));
    child.on("close", () => {
      clearTimeout(timer);
      resolve(output);
    });
  });
}
