/**
 * `npm run test:docs [-- systemd
 * containers
 * kubernetes]`: runs the commands of docs/ that need a service manager, a container engine or a cluster, exactly as
 * written. Missing programs are reported and skipped; with an argument, a missing program is a failure.
 */
import { spawnSync } from "node:child_process";
import * as containers from "./docs/containers.mjs";
import { docCommands } from "./docs/pages.mjs";
import * as systemd from "./docs/systemd.mjs";
import { installIfMissing, root, step } from "./steps.mjs";

const only = process.argv[2];

const PARTS = {
  systemd: {
    obstacle: systemd.obstacle,
    async run() {
      step("package", process.execPath, ["scripts/package.mjs", "--one-file"]);
      await systemd.testSystemd(docCommands("docs/install.md", "systemd"), docCommands("docs/upgrade.md", "systemd"));
    },
  },
  containers: {
    obstacle: containers.obstacle,
    async run() {
      await containers.testContainers(docCommands("docs/install.md", "Container"));
      await containers.testContainers(docCommands("docs/deploy.md", "Deploy"));
    },
  },
  kubernetes: {
    obstacle: () => (process.env.KUBECONFIG ? undefined : "KUBECONFIG does not name a cluster"),
    async run() {
      for (const written of docCommands("docs/kubernetes.md", "Kubernetes")) {
        // The Gateway API's own file, where there is no way to the internet.
        const local = process.env.GATEWAY_API_CRDS;
        const command = local ? written.replace(/https:\S+\/standard-install\.yaml/, local) : written;
        console.log(`$ ${command}`);
        const { status } = spawnSync("sh", ["-c", command], { cwd: root, stdio: "inherit" });
        if (status !== 0) throw new Error(`${command}: exit code ${status}`);
      }
    },
  },
};

if (only !== undefined && !(only in PARTS)) {
  console.error(`there is no part ${only}; there is ${Object.keys(PARTS).join(", ")}`);
  process.exit(2);
}
installIfMissing();
for (const [name, { obstacle, run }] of Object.entries(PARTS)) {
  if (only !== undefined && only !== name) continue;
  const reason = obstacle();
  if (reason !== undefined) {
    console.log(`${name}: left out: ${reason}`);
    if (only === name) process.exitCode = 1;
    continue;
  }
  await run();
  console.log(`${name}: every command of the pages works`);
}
