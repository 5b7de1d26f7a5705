#!/usr/bin/env node
/**
 * Implements the flags and exit codes of `gateway`. All other code is imported on demand, so that `--version` is fast.
 */
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { setFlagsFromString } from "node:v8";
import { print } from "../base/print.ts";
import { VERSION } from "../base/version.ts";
import { limitYoungGeneration } from "./young-generation.ts";

const HELP = `Usage: gateway [-f <path>]... [options]
       gateway ctl <command>     (the same as gwctl <command>)
       gateway controller        (runs Gateways of a Kubernetes cluster; see gateway controller --help)

  -f, --file <path>   A configuration file, a directory of them, or - for standard input; repeatable.
                      Without it an embedded default runs on loopback.
      --validate-only Checks the configuration, prints every problem, and exits with 0 or 1.
        --strict                  Also exits with 1 if there are warnings.
        --format text|json|github How problems are printed. Default: text.
        --allow-missing-env       Checks the rest if environment variables are not set.
      --test          Runs the \`tests\` of the configuration without sending anything, and exits with 0 or 1;
                      with --format and --allow-missing-env as above.
      --rehearse <path>           What a new configuration would change for requests that were seen; exits with 0, or with
                                  1 if a client is newly denied, admitted or limited; repeatable. Nothing is sent.
        --admin <addr>            The last requests of the gateway with this admin address (default localhost:15000), or
        --recording <file>        those of a recording (gwctl record), compared with the configuration of -f, if given;
                                  with --strict (also routes, answers and headers), --format text|json, --allow-missing-env.
      --health [addr] Asks a running gateway whether it is ready, at its admin or stats address (by default
                      localhost:15000), and exits with 0 or 1.
      --gateway <namespace/name>  Serves a Gateway of a Kubernetes cluster:
        --kubeconfig <file>       read the Gateway from this cluster (read-only, for development), or
        --context <name>
        --from <url>              as its controller says, with
        --token-file <file>       file with the token for the controller, and
        --state-folder <folder>   where the last good state is kept.
      --version       Prints the version.
      --help          Prints this text.

The gateway watches the files: it applies a valid change without dropping a request, and rejects and logs an invalid one.
`;

const CONFIG_FLAG = /^(?:-c|--config(?:-file)?)(?:=(.+))?$/;

main().catch((error) => {
  print(2, `${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
  process.exit(1);
});

async function main(): Promise<void> {
  const [first, second] = process.argv.slice(2);
  if (first === "ctl") {
    process.argv.splice(2, 1);
    await import("./gwctl.ts");
    return;
  }
  if (first === "controller") {
    const { runController } = await import("./controller.ts");
    process.exitCode = await runController(process.argv.slice(3));
    return;
  }
  if (first === "--health") {
    const { checkHealth } = await import("./health.ts");
    const { isReady, message } = await checkHealth(second);
    print(isReady ? 1 : 2, `${message}\n`);
    process.exitCode = isReady ? 0 : 1;
    return;
  }
  const flags = readFlags();
  if (flags.help) {
    print(1, HELP);
    return;
  }
  if (flags.version) {
    print(1, `gateway ${VERSION}\n`);
    return;
  }
  if (flags.rehearse !== undefined) {
    const rehearsal = rehearseFlags(flags, flags.rehearse);
    const { runRehearsal } = await import("./rehearse.ts");
    process.exitCode = await runRehearsal(rehearsal);
    return;
  }
  // V8 would otherwise allocate per-request objects in the old generation, where they retain whole requests until the
  // next full collection (ADR 11).
  setFlagsFromString("--no-allocation-site-pretenuring");
  limitYoungGeneration();
  const { enableCompileCache } = await import("./compile-cache.ts");
  enableCompileCache();
  const { run } = await import("./run.ts");
  process.exitCode = await run({
    files: flags.file,
    validate: validateFlags(flags),
    isTest: flags.test === true,
    cluster: clusterFlags(flags),
    readStdin: () => readFileSync(0, "utf8"),
  });
}

function readFlags() {
  try {
    const { values } = parseArgs({
      options: {
        file: { type: "string", short: "f", multiple: true },
        "validate-only": { type: "boolean" },
        test: { type: "boolean" },
        rehearse: { type: "string", multiple: true },
        admin: { type: "string" },
        recording: { type: "string" },
        strict: { type: "boolean" },
        format: { type: "string" },
        "allow-missing-env": { type: "boolean" },
        gateway: { type: "string" },
        kubeconfig: { type: "string" },
        context: { type: "string" },
        from: { type: "string" },
        "token-file": { type: "string" },
        "state-folder": { type: "string" },
        version: { type: "boolean", short: "V" },
        help: { type: "boolean", short: "h" },
      },
    });
    return values;
  } catch (error) {
    return wrongUse(`${(error as Error).message}${fileHint(process.argv.slice(2))}`);
  }
}

function wrongUse(message: string): never {
  print(2, `${message}\n\n${HELP}`);
  process.exit(2);
}

function validateFlags(flags: ReturnType<typeof readFlags>) {
  const lone = (["admin", "recording"] as const).find((name) => name in flags);
  if (lone !== undefined) return wrongUse(`--${lone} can only be used with --rehearse`);
  const { strict = false, format = "text", "allow-missing-env": allowMissingEnv = false } = flags;
  if (flags.test === true && (flags["validate-only"] === true || strict))
    return wrongUse(`--test cannot be used with ${strict ? "--strict" : "--validate-only"}`);
  if (flags["validate-only"] !== true && flags.test !== true) {
    const given = ["strict", "format", "allow-missing-env"].find((name) => name in flags);
    return given === undefined ? undefined : wrongUse(`--${given} can only be used with --validate-only or --test`);
  }
  if (format !== "text" && format !== "json" && format !== "github")
    return wrongUse(`--format is text, json or github, not ${JSON.stringify(format)}`);
  return { strict, format, allowMissingEnv } as const;
}

function rehearseFlags(flags: ReturnType<typeof readFlags>, after: readonly string[]) {
  const { admin, recording, strict = false, format = "text", "allow-missing-env": allowMissingEnv = false } = flags;
  if (flags.test === true || flags["validate-only"] === true || flags.gateway !== undefined)
    return wrongUse("--rehearse cannot be used with --test, --validate-only or --gateway");
  if (admin !== undefined && recording !== undefined) return wrongUse("give --admin or --recording, not both");
  if (recording === undefined && flags.file !== undefined)
    return wrongUse("-f is for --recording: a running gateway is compared with what it serves");
  if (recording === undefined && allowMissingEnv)
    return wrongUse("--allow-missing-env is for --recording: a running gateway has its own environment");
  if (format !== "text" && format !== "json")
    return wrongUse(`--format is text or json with --rehearse, not ${JSON.stringify(format)}`);
  const readStdin = (): string => readFileSync(0, "utf8");
  return { after, before: flags.file, admin, recording, strict, format, allowMissingEnv, readStdin } as const;
}

function clusterFlags(flags: ReturnType<typeof readFlags>) {
  const { gateway, kubeconfig, context, from, "token-file": tokenFile, "state-folder": stateFolder } = flags;
  if (gateway === undefined) {
    const given = ["kubeconfig", "context", "from", "token-file", "state-folder"].find((name) => name in flags);
    return given === undefined ? undefined : wrongUse(`--${given} needs --gateway <namespace/name>`);
  }
  if (!/^[a-z0-9-]{1,63}\/[a-z0-9.-]{1,253}$/.test(gateway))
    return wrongUse(`--gateway is <namespace>/<name>, not ${JSON.stringify(gateway)}`);
  if (from === undefined) return { gateway, kubeconfig, context } as const;
  if (!URL.canParse(from) || new URL(from).protocol !== "https:") return wrongUse("--from is an https:// URL");
  if (tokenFile === undefined) return wrongUse("--from needs --token-file <file>");
  return { gateway, from, tokenFile, stateFolder } as const;
}

/** Recognizes `gateway config.yaml`, `-c config.yaml` and `--config=config.yaml`, which other programs accept. */
function fileHint(args: readonly string[]): string {
  const index = args.findIndex((arg) => CONFIG_FLAG.test(arg) || !arg.startsWith("-"));
  const found = args[index];
  if (found === undefined || args.includes("-f") || args.includes("--file")) return "";
  const flag = CONFIG_FLAG.exec(found);
  const file = flag ? (flag[1] ?? args[index + 1]) : found;
  return file === undefined || file.startsWith("-") ? "" : `\nDid you mean: gateway -f ${file}`;
}
