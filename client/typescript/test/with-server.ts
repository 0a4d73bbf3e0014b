/** `node with-server.js PROGRAM [ARGUMENT...]`: runs a program of Node.js with the address of a server, and ends as it does. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { Server } from "./server.js";

const server = await Server.start();
const [program = "", ...rest] = process.argv.slice(2);
const child = spawn(process.execPath, [program, server.address, ...rest], {
  stdio: ["ignore", "inherit", "inherit"],
});
[process.exitCode] = await once(child, "exit");
await server.stop();
