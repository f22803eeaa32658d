"""The engine `libvirt`: hosts are servers, jobs are virtual machines. Start reading in `engine`."""
