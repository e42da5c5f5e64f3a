export { default } from "../config.js";
